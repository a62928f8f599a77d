"""What `strandline import` reads: files, folders and archives as events, and what it does not take,
counted by kind."""
