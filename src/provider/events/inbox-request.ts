/** A request of the inbox as the queue stores it: everything but the body. */
import * as z from 'zod';

/** IDs of endpoints that stand for the app of a route. No other endpoint can have one: `:` is not allowed in their IDs. */
export const INBOX_PREFIX = 'inbox:';

export const INBOX_TYPE = 'inbox';

export function toInboxEndpoint(route: string): string {
  return `${INBOX_PREFIX}${route}`;
}

export function isInboxEndpoint(id: string): boolean {
  return id.startsWith(INBOX_PREFIX);
}

/** The request to the app, with the headers that the gate built when it accepted the delivery. */
export interface InboxRequest {
  readonly method: string;
  readonly path: string;
  /** Raw pairs in the order they are sent, including the framing header. */
  readonly headers: readonly string[];
}

const InboxMetadata = z.object({
  inbox: z.object({ method: z.string(), path: z.string(), headers: z.array(z.string()) }),
});

export function toInboxMetadata(inbox: InboxRequest): string {
  return JSON.stringify({ inbox });
}

/** Undefined if the metadata is not that of an inbox event. */
export function parseInboxMetadata(metadata: string): InboxRequest | undefined {
  try {
    const parsed = InboxMetadata.safeParse(JSON.parse(metadata));
    return parsed.success ? parsed.data.inbox : undefined;
  } catch {
    return undefined;
  }
}
