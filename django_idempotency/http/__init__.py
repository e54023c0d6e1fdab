"""HttpRequest → Ticket, verdict → HttpResponse. Shared by the entry points."""
