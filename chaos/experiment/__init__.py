"""The experiment file: reading, checking and writing it, and the words a method is written in."""
