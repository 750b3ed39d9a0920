/** The part of the API that shows and repairs what the sending side sends. */
import type { Progress } from '../action.tsx';
import { ApiError, request } from '../api.ts';
import { toWords } from '../format.ts';

/** An endpoint that receives events. */
export interface Endpoint {
  readonly id: string;
  /** Only those of the API have a secret that can be rotated. */
  readonly source: 'config' | 'api';
  readonly url: string;
  readonly tenant?: string;
  readonly allTenants: boolean;
  readonly disabled?: { readonly at: string; readonly reason: string };
}

/** Its backlog, and its failures in a row. */
export interface EndpointStats {
  readonly waiting: number;
  readonly oldestDue?: string;
  readonly failing?: {
    readonly failures: number;
    readonly since: string;
    readonly lastAttempt?: Attempt;
    readonly pausedUntil?: string;
  };
}

/** An attempt to deliver. */
export interface Attempt {
  readonly at: string;
  readonly durationMs: number;
  readonly status?: number;
  readonly outcome: string;
  readonly detail?: string;
}

/** How an attempt ended. */
export function describeAttempt({ outcome, status }: Attempt): string {
  return status === undefined ? toWords(outcome) : `${toWords(outcome)} (${status})`;
}

export const STATES = ['dead', 'waiting', 'skipped', 'delivered'] as const;

/** One event for one endpoint. */
export interface OutgoingDelivery {
  readonly id: string;
  readonly event: string;
  readonly endpoint: string;
  readonly type: string;
  readonly tenant?: string;
  readonly state: (typeof STATES)[number];
  readonly createdAt: string;
  readonly attempts: number;
  readonly due?: string;
  readonly settledAt?: string;
  readonly lastAttempt?: Attempt;
}

/** A page of a list. */
export interface ListPage<T> {
  readonly data: readonly T[];
  readonly iterator: string | null;
}

interface RepairLine {
  readonly changed: number;
  readonly total: number;
  readonly done: boolean;
  readonly error?: string;
}

/** A change of many deliveries, or of one. */
export interface Repair {
  readonly action: 'retry' | 'cancel';
  readonly endpoint: string;
  readonly event?: string;
}

const INTERRUPTED = 'It was interrupted. Start it again: it continues with the rest.';

/** The path of an endpoint. */
export function toEndpointPath(id: string): string {
  return `/outgoing/endpoints/${encodeURIComponent(id)}`;
}

/** The path of a delivery. */
export function toDeliveryPath({ event, endpoint }: Pick<OutgoingDelivery, 'event' | 'endpoint'>): string {
  return `/outgoing/deliveries/${encodeURIComponent(event)}~${encodeURIComponent(endpoint)}`;
}

/** Sends an action without a body. */
export async function act(path: string, signal: AbortSignal): Promise<Response> {
  return request(path, { method: 'POST', signal });
}

/** Retries dead and skipped deliveries, or cancels waiting ones; resolves to how many. */
export async function repair(body: Repair, onProgress: (progress: Progress) => void, signal: AbortSignal): Promise<number> {
  const headers = { 'Content-Type': 'application/json' };
  const response = await request('/outgoing/repairs', { method: 'POST', headers, body: JSON.stringify(body), signal });
  let last: RepairLine | undefined;
  for await (const line of readLines(response)) {
    last = JSON.parse(line) as RepairLine;
    if (last.error !== undefined) throw new ApiError(0, last.error);
    onProgress({ done: last.changed, total: last.total });
  }
  if (last?.done !== true) throw new ApiError(0, INTERRUPTED);
  return last.changed;
}

async function* readLines({ body }: Response): AsyncGenerator<string> {
  if (body === null) return;
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    const lines = `${rest}${value ?? ''}`.split('\n');
    rest = lines.pop() ?? '';
    yield* lines.filter((line) => line !== '');
    if (done) return;
  }
}
