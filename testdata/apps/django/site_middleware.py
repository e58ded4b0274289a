import ledger


class LedgerMiddleware:
    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        path = request.META.get("RAW_URI") or request.get_full_path()
        entry = ledger.Entry(request.headers.get("X-Ledger-Id"), request.method, path)
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
