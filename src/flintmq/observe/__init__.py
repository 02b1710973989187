"""What a broker says about itself: log events, metrics, traces."""
