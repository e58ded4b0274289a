-- wrk calls done once, after the run: nothing here costs a request anything.
done = function(summary, latency, requests)
   local errors = summary.errors
   io.write(string.format(
      '\nreport {"requests":%d,"micros":%d,"p50_micros":%d,"p99_micros":%d,' ..
      '"errors":{"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}}\n',
      summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
      errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
