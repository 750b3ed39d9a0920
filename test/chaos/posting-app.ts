/**
 * An app that posts events to its sidecar, in batches with known IDs, and repeats each batch until it is accepted: `posting-app.ts URL FIRST LAST TENANTS`.
 * Prints the number after the last accepted event. It can be killed at any time: the next one repeats the batch whose response was lost.
 */
import { argv } from 'node:process';

const BATCH = 100;
const RETRY_MS = 50;
const [url = '', first = '', last = '', tenants = ''] = argv.slice(2);

async function post(from: number): Promise<boolean> {
  const events = Array.from({ length: BATCH }, (_, i) => ({
    type: 'chaos.made',
    id: `chaos-${from + i}`,
    tenant: `tenant-${(from + i) % Number(tenants)}`,
    data: { number: from + i },
  }));
  try {
    const headers = { 'Content-Type': 'application/json' };
    const response = await fetch(`${url}/v1/events:batch`, { method: 'POST', headers, body: JSON.stringify({ events }) });
    await response.arrayBuffer();
    return response.status === 202;
  } catch {
    return false;
  }
}

for (let next = Number(first); next < Number(last); ) {
  if (await post(next)) {
    next += BATCH;
    console.log(next);
  } else await new Promise((done) => setTimeout(done, RETRY_MS));
}
