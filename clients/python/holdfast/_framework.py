"""Requests and responses of Django and of Flask, which name things differently."""


def fields_of(response):
    """The response's header fields, to be set and deleted."""
    # Django before 3.2 has them on the response itself.
    return response if getattr(response, "headers", None) is None else response.headers


def without(fields, name):
    """Delete a field that may not be there."""
    try:
        del fields[name]
    except KeyError:
        pass


def field_of(request, name):
    """The value of a request's header field, None if it has none."""
    headers = getattr(request, "headers", None)
    if headers is not None:
        return headers.get(name)
    # Django before 2.2
    return request.META.get("HTTP_" + name.upper().replace("-", "_"))


def body_of(request):
    """The request's body as bytes."""
    if hasattr(request, "get_data"):  # Flask
        return request.get_data()
    return request.body


def give_body(response, body):
    """Make bytes the response's body. ValueError if it can have none."""
    if hasattr(response, "set_data"):  # Flask
        response.set_data(body)
        return
    if getattr(response, "streaming", False) or not hasattr(response, "content"):
        raise ValueError("a %s has no body that can be given; use an HttpResponse, or Flask's Response" % type(response).__name__)
    response.content = body
    fields = fields_of(response)
    if "Content-Length" in fields:  # which a view has set by hand
        fields["Content-Length"] = str(len(body))
