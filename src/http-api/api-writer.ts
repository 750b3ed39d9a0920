/** Writes the responses of the API. */
import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Milliseconds } from '../core/clock.ts';
import { endCounted, type PauseOwner, pauseUntilDrained } from '../core/read-pause.ts';
import type { ApiResponse } from './operation.ts';

const JSON_TYPE = 'application/json';
const SEND_TIMEOUT_MS: Milliseconds = 30_000;

/** `client`: who asked. Resolves when the response is handed over to the system; rejects if its lines cannot be produced. */
export async function writeResponse(reply: ApiResponse, response: ServerResponse, client: PauseOwner): Promise<void> {
  try {
    await write(reply, response, client);
  } finally {
    reply.onWritten?.();
  }
}

async function write(reply: ApiResponse, response: ServerResponse, client: PauseOwner): Promise<void> {
  const { status, body, lines, stream, contentType = JSON_TYPE, headers } = reply;
  const fields: OutgoingHttpHeaders = { 'Cache-Control': 'no-store', 'X-Content-Type-Options': 'nosniff', ...headers };
  if (lines !== undefined) {
    response.writeHead(status, { 'Content-Type': contentType, ...fields });
    await writeLines(lines, response, client);
    return;
  }
  if (stream !== undefined) {
    response.writeHead(status, { 'Content-Type': contentType, ...fields });
    if (response.req.method === 'HEAD') response.end();
    else stream(response, client);
    return;
  }
  if (body === undefined) {
    // RFC 9110 §8.6: no length with 204.
    response.writeHead(status, fields);
    response.end();
    return;
  }
  const text = Buffer.isBuffer(body) ? body : JSON.stringify(body);
  response.writeHead(status, { 'Content-Type': contentType, 'Content-Length': Buffer.byteLength(text), ...fields });
  if (response.req.method === 'HEAD') response.end();
  else endCounted(response, text, client, SEND_TIMEOUT_MS);
}

/** Stops as soon as the client has disconnected. */
async function writeLines(lines: AsyncIterable<unknown>, response: ServerResponse, client: PauseOwner): Promise<void> {
  for await (const line of lines) {
    if (response.destroyed) return;
    if (!response.write(`${JSON.stringify(line)}\n`)) await toDrained(response, client);
  }
  response.end();
}

/** Resolves when more can be written, or the client has disconnected. A client that does not read is disconnected. */
async function toDrained(response: ServerResponse, client: PauseOwner): Promise<void> {
  const pause = pauseUntilDrained(response, client, SEND_TIMEOUT_MS);
  await new Promise<void>((resolve) => (pause === undefined ? resolve() : pause.onOver(resolve)));
}
