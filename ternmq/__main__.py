"""`python -m ternmq`: the command line."""

from ternmq_console.main import main

if __name__ == "__main__":
    main()
