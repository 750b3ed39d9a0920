/** Writes the responses of the API. */
import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Clock, Milliseconds } from '../core/clock.ts';
import { pauseUntilDrained } from '../core/read-pause.ts';
import type { ApiResponse } from './operation.ts';

const JSON_TYPE = 'application/json';
const SEND_TIMEOUT_MS: Milliseconds = 30_000;

/** Resolves when the response is handed over to the system; rejects if its lines cannot be produced. */
export async function writeResponse(reply: ApiResponse, response: ServerResponse, clock: Clock): Promise<void> {
  const { status, body, lines, stream, contentType = JSON_TYPE, headers } = reply;
  const fields: OutgoingHttpHeaders = { 'Cache-Control': 'no-store', 'X-Content-Type-Options': 'nosniff', ...headers };
  if (lines !== undefined) {
    response.writeHead(status, { 'Content-Type': contentType, ...fields });
    await writeLines(lines, response, clock);
    return;
  }
  if (stream !== undefined) {
    response.writeHead(status, { 'Content-Type': contentType, ...fields });
    if (response.req.method === 'HEAD') response.end();
    else stream(response);
    return;
  }
  if (body === undefined) {
    // RFC 9110 §8.6: no length with 204.
    response.writeHead(status, fields);
    response.end();
    return;
  }
  const text = JSON.stringify(body);
  response.writeHead(status, { 'Content-Type': contentType, 'Content-Length': Buffer.byteLength(text), ...fields });
  response.end(response.req.method === 'HEAD' ? undefined : text);
}

/** Stops as soon as the client has disconnected. */
async function writeLines(lines: AsyncIterable<unknown>, response: ServerResponse, clock: Clock): Promise<void> {
  for await (const line of lines) {
    if (response.destroyed) return;
    if (!response.write(`${JSON.stringify(line)}\n`)) await toDrained(response, clock);
  }
  response.end();
}

/** Resolves when more can be written, or the client has disconnected. A client that does not read is disconnected. */
function toDrained(response: ServerResponse, clock: Clock): Promise<void> {
  return new Promise((resolve) => pauseUntilDrained(response, clock, SEND_TIMEOUT_MS).onOver(resolve));
}
