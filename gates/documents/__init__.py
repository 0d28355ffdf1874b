"""What the documents say, held against what there is: links, names, commands, and code that runs."""
