"""How a report looks: HTML, Markdown, and the terminal."""
