"""A local page for people who do not program: it composes a command, shows it, and runs exactly that command."""
