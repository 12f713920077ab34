"""Point spread functions: plane-wave spectra summed on the sensor's own grid."""
