-- Read by wrk before the first request: each is the same POST of 1 MiB.
wrk.method = "POST"
wrk.body = string.rep("u", 1048576)
