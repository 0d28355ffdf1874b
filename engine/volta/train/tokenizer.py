"""Text as bytes: token = byte value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from volta.errors import UsageError


class ByteTokenizer:
    """Every text is its UTF-8 bytes; nothing is out of vocabulary and nothing is learned."""

    name = "bytes"
    vocabulary = 256

    def encode(self, text: str | bytes) -> npt.NDArray[np.int32]:
        """Tokens i32 [n]. Bytes that the shell passed undecoded (surrogate escapes) come through."""
        if isinstance(text, str):
            try:
                text = text.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError as error:
                raise UsageError(
                    f"[tokenizer] text holds {error.object[error.start]!a}: not a character"
                ) from None
        return np.frombuffer(text, np.uint8).astype(np.int32)

    def decode(self, tokens: Sequence[int] | npt.NDArray[np.int32]) -> str:
        """Text of tokens [n]; what is not UTF-8 becomes U+FFFD."""
        return self.decode_bytes(tokens).decode("utf-8", "replace")

    def decode_bytes(self, tokens: Sequence[int] | npt.NDArray[np.int32]) -> bytes:
        """The exact bytes of tokens [n]. Raises UsageError for a token outside 0 .. 255."""
        values = np.asarray(tokens, np.int64)
        outside = values[(values < 0) | (values >= self.vocabulary)]
        if outside.size:
            raise UsageError(f"[tokenizer] token {outside[0]}: expected 0 .. {self.vocabulary - 1}")
        return values.astype(np.uint8).tobytes()
