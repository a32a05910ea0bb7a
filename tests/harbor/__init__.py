"""Harbor itself runs the project's tasks; opt-in (`make test-harbor`)."""
