"""What every command line of Headgate is made of: options, connection, output, exit codes. It knows no command."""
