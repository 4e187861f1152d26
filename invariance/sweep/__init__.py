"""Every input: the whole domain of a dtype, judged, and a certificate that merges and compares."""
