"""What a command line says, without running it: its simple commands, their words, and what runs through them."""
