"""From results to pages: console, HTML, JUnit, goodput and cost."""
