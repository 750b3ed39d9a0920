/** Reads the body of a request to the admin port. */
import type { IncomingMessage } from 'node:http';

/** Returns undefined if the body has more than `maxBytes`. */
export async function readContent(request: IncomingMessage, maxBytes: number): Promise<Buffer | undefined> {
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) return undefined;
  const chunks: Buffer[] = [];
  let length = 0;
  // With the default, leaving the loop early would close the connection before the response.
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > maxBytes) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
