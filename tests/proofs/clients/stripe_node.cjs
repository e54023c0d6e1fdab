// One payment through Stripe's client for Node: it prints the id, or the error that the client has raised.
const { url, key, amount, retries, packages } = JSON.parse(process.argv[2]);
const Stripe = require(require.resolve("stripe", { paths: [packages] }));
const { hostname, port } = new URL(url);

async function main() {
  const options = { host: hostname, port, protocol: "http", maxNetworkRetries: retries, telemetry: false };
  const stripe = new (Stripe.default ?? Stripe)("sk_test_1", options);
  try {
    const made = await stripe.paymentIntents.create({ amount, currency: "eur" }, key ? { idempotencyKey: key } : {});
    console.log(JSON.stringify({ id: made.id }));
  } catch (error) {
    console.log(JSON.stringify({ error: error.type, status: error.statusCode, code: error.code }));
  }
}

main();
