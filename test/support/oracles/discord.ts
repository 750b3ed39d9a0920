/** How Discord's own library answers the pings of its two kinds of endpoints. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { verifyKeyMiddleware, verifyWebhookEventMiddleware } from 'discord-interactions';
import express from 'express';
import type { SignedDelivery } from './oracle.ts';

/** `interactions` and `events` are two URLs in Discord's portal. */
export async function askDiscord(
  { headers, body }: SignedDelivery,
  publicKey: string,
  kind: 'interactions' | 'events',
): Promise<{ readonly status: number; readonly text: string }> {
  const middleware = kind === 'interactions' ? verifyKeyMiddleware : verifyWebhookEventMiddleware;
  const app = express();
  app.post('/', middleware(publicKey), (_request, response) => {
    response.status(500).end();
  });
  const server = createServer(app);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const response = await fetch(url, { method: 'POST', headers: { ...headers, connection: 'close' }, body });
    return { status: response.status, text: await response.text() };
  } finally {
    server.close();
  }
}
