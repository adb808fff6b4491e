//! What the middle runs, without I/O: queues, marking, trimming, forwarding.
