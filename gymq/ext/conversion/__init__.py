"""Between the Responses API and other dialects: Chat Completions, and what all conversions share."""
