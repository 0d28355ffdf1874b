/* Reads the forms of manifest.c against operands. */
#include "form.h"

#include <stddef.h>

#include "manifest.h"

#define VOLTA_UNKNOWN (-1)

/* The length that each letter stands for in one step. */
typedef struct {
  int64_t of['Z' - 'A' + 1];
} lengths;

static int length_fits(lengths *known, char letter, int64_t length) {
  if (letter >= '0' && letter <= '9') return length == letter - '0';
  if (letter == 'd') return length == known->of['D' - 'A'] / 2 && known->of['D' - 'A'] % 2 == 0;
  const int64_t heads = known->of['H' - 'A'];
  if (letter == 'G' && heads > 0 && (length == 0 || heads % length != 0)) return 0;
  int64_t *own = &known->of[letter - 'A'];
  if (*own == VOLTA_UNKNOWN) *own = length;
  return *own == length;
}

static int is_contiguous(const volta_operand *o) {
  int64_t run = 1;
  for (int32_t axis = o->rank - 1; axis >= 0; axis--) {
    if (o->shape[axis] > 1 && o->stride[axis] != run) return volta_numel(o) == 0;
    run *= o->shape[axis];
  }
  return 1;
}

static int ends(char character) { return character == ' ' || character == '\0'; }

/* One word of a form, which ends at a space or at the form's end. */
static int word_fits(const char *word, const volta_operand *o, lengths *known) {
  if (*word == '?') return 1;
  const int32_t dtype = *word == 'i' ? VOLTA_I32 : *word == 'b' ? VOLTA_I8 : VOLTA_F32;
  if (dtype != VOLTA_F32) word++;
  if (o->dtype != dtype) return 0;
  if (*word == '~') return 1;
  if (word[1] == '=') return is_contiguous(o) && length_fits(known, *word, volta_numel(o));
  int32_t axis = 0;
  for (; !ends(*word) && *word != '-'; word++, axis++) {
    if (axis == o->rank || !length_fits(known, *word, o->shape[axis])) return 0;
  }
  if (axis != o->rank) return 0;
  return *word != '-' || o->shape[axis - 1] <= 1 || o->stride[axis - 1] == 1 || volta_numel(o) == 0;
}

int volta_form_misfit(const volta_step *step, const volta_operand *operands) {
  const char *form = volta_kernel_form(step->kernel);
  if (form == NULL) return -1;
  lengths known;
  for (int letter = 0; letter < (int)(sizeof known.of / sizeof *known.of); letter++) {
    known.of[letter] = VOLTA_UNKNOWN;
  }
  for (int32_t operand = 0; operand < step->n_operands; operand++) {
    while (*form == ' ' || *form == '|') form++;
    if (!word_fits(form, &operands[operand], &known)) return operand;
    while (!ends(*form)) form++;
  }
  return -1;
}
