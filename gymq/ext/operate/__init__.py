"""What an operator does beside a run: pause, retune, cancel and delete it, push weights, look at dead letters."""
