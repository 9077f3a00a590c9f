"""What it costs: sampling, environment, roofline."""
