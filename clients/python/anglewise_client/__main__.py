"""``python -m anglewise_client`` is the command line."""

from anglewise_client.cli import main

if __name__ == "__main__":
    main()
