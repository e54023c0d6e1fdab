"""Ring 4: HttpRequest → Ticket, verdict → HttpResponse. What the doors share."""
