"""Files of other programs, read into projects; one program a folder or file."""
