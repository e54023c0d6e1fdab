// Sends what benchmarks/throughput.py asks for: POSTs of several clients at once, each with its own key, or none.
import exec from "k6/execution";
import http from "k6/http";

const { ADDRESS, AUTHORIZATION, CLIENTS, KEYS, PREFIX, SECONDS } = __ENV;

export const options = {
  duration: `${SECONDS}s`,
  noConnectionReuse: true, // so that no worker keeps more clients than another
  summaryTrendStats: ["p(50)", "p(99)"],
  vus: Number(CLIENTS),
};

export default function () {
  const headers = { Authorization: AUTHORIZATION, "Content-Type": "application/json" };
  const client = exec.vu.idInTest;
  if (KEYS === "fresh") headers["Idempotency-Key"] = `${PREFIX}-${client}-${exec.vu.iterationInInstance}`;
  if (KEYS === "known") headers["Idempotency-Key"] = `${PREFIX}-known-${client}`;
  const answer = http.post(ADDRESS, '{"label": "work"}', { headers });
  const replayed = answer.headers["Idempotent-Replayed"] === "true";
  if (answer.status !== 201 || replayed !== (KEYS === "known")) {
    exec.test.abort(`${answer.status} ${answer.body}`);
  }
}

export function handleSummary({ metrics }) {
  const { http_reqs: requests, http_req_duration: times } = metrics;
  return { stdout: JSON.stringify({ rate: requests.values.rate, ...times.values }) };
}
