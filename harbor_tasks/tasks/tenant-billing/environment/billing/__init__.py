"""Water billing for houses with shared meters. docs/SPEC.md says what is right."""
