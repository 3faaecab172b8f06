// A webhook receiver as a customer would write one in JavaScript: `receiver.py` tells what it does and how it is called.
// It stands beside the `node_modules` that hold its library.

import { createHash } from "node:crypto";
import { createServer } from "node:http";

const FRESH_SECONDS = 300;

// Each library, as its documentation asks to be called: given the raw body, true or a return means verified.
const LIBRARIES = {
  async standardwebhooks() {
    const { Webhook } = await import("standardwebhooks");
    return (body, headers, secrets) =>
      anyOf(secrets, (secret) => new Webhook(secret).verify(body, headers, { jsonParse: false }));
  },
  async stripe() {
    const { default: Stripe } = await import("stripe");
    const { signature } = new Stripe("sk_test_of_nobody").webhooks;
    return (body, headers, secrets) =>
      anyOf(secrets, (secret) => signature.verifyHeader(body, headers["stripe-signature"], secret, FRESH_SECONDS));
  },
  async octokit() {
    const { verifyWithFallback } = await import("@octokit/webhooks-methods");
    return async (body, headers, [secret, ...more]) => {
      const signature = headers["x-hub-signature-256"];
      if (!(await verifyWithFallback(secret, body.toString("utf8"), signature, more))) {
        throw new Error("the signature does not match");
      }
    };
  },
};

function anyOf(secrets, verify) {
  let refusal = new Error("no secret is trusted");
  for (const secret of secrets) {
    try {
      verify(secret);
      return;
    } catch (error) {
      refusal = error;
    }
  }
  throw refusal;
}

const verify = await LIBRARIES[process.argv[2]]();
const hooks = new Map();

async function deliver(hook, headers, body) {
  const seen = { status: 204, why: "", at: Date.now() / 1000, headers };
  seen.sha256 = createHash("sha256").update(body).digest("hex");
  hook.seen.push(seen);
  try {
    await verify(body, headers, hook.secrets);
  } catch (refusal) {
    seen.status = 401;
    seen.why = `${refusal.name}: ${refusal.message}`;
  }
  if (seen.status === 204 && hook.busy > 0) {
    hook.busy -= 1;
    seen.status = 503;
    seen.why = "busy";
  }
  return seen;
}

const server = createServer(async (request, response) => {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const body = Buffer.concat(pieces);
  if (request.method === "PUT") {
    const { secrets, busy } = JSON.parse(body);
    hooks.set(request.url, { seen: [], ...hooks.get(request.url), secrets, busy });
    response.writeHead(204).end();
  } else if (request.method === "GET") {
    response.writeHead(200).end(JSON.stringify(hooks.get(request.url).seen));
  } else {
    const { status, why } = await deliver(hooks.get(request.url), request.headers, body);
    response.writeHead(status).end(status === 204 ? undefined : why);
  }
});

server.keepAliveTimeout = 60_000;
server.listen(0, "127.0.0.1", () => console.log(JSON.stringify({ port: server.address().port })));
process.stdin.on("end", () => process.exit(0)).resume();
