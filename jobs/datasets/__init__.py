"""Data sets: uploads checked and stored, built-in ones, generated ones, and how a training gets them."""
