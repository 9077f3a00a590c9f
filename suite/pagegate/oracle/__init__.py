"""What is right: reference, budgets, relations, checking, fuzzing, mutants."""
