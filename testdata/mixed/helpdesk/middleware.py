import ledger


class LedgerMiddleware:
    """Notes what the app really ran, where LEDGER names a file (../apps/ledger.py)."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        entry = ledger.Entry(request.headers.get("X-Ledger-Id"), request.method, request.get_full_path())
        try:
            response = self.get_response(request)
        except BaseException:
            entry.end()
            raise
        if response.streaming:
            response.streaming_content = ledger.Pieces(response.streaming_content, entry)
        else:
            entry.end()
        return response
