/** The app's side of the provider's API, by fetch. */

/** A response of the API. */
export interface ApiReply {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Record<string, unknown>;
}

/** Sends a request with a JSON body. */
export async function call(port: number, method: string, path: string, body?: unknown): Promise<ApiReply> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, {
    method,
    ...(body === undefined ? undefined : { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, body: text === '' ? {} : JSON.parse(text) };
}

/** Posts an event; returns its ID once it is accepted. */
export async function postEvent(port: number, event: Readonly<Record<string, unknown>> = {}): Promise<string> {
  const { status, body } = await call(port, 'POST', '/v1/events', { type: 'invoice.paid', data: { amount: 4200 }, ...event });
  if (status !== 202) throw new Error(`the event got ${status}: ${JSON.stringify(body)}`);
  return String(body['id']);
}

/** The deliveries that match. */
export async function listDeliveries(port: number, query = ''): Promise<Record<string, unknown>[]> {
  const { body } = await call(port, 'GET', `/v1/deliveries${query}`);
  return body['data'] as Record<string, unknown>[];
}
