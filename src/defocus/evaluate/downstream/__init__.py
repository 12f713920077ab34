"""What deblurring is good for: depth and segmentation of blurred, restored and sharp pictures (the paper's S7)."""
