"""What holds for every test."""

import signal

# A shell that starts something in the background has it ignore Ctrl-C, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
