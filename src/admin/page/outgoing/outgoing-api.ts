/** The part of the API that shows and repairs what the sending side sends. */
import type { AttemptView, OutgoingDelivery } from '../../../provider/api/schemas.ts';
import type { Progress } from '../action.tsx';
import { ApiError, request } from '../api.ts';
import { toWords } from '../format.ts';

/** How an attempt ended. */
export function describeAttempt({ outcome, status }: AttemptView): string {
  return status === undefined ? toWords(outcome) : `${toWords(outcome)} (${status})`;
}

export const STATES = ['dead', 'waiting', 'skipped', 'delivered'] as const;

/** A page of a list. */
export interface ListPage<T> {
  readonly data: readonly T[];
  readonly iterator: string | null;
}

interface RepairProgressLine {
  readonly changed: number;
  readonly total: number;
  readonly done: boolean;
  readonly error?: string;
}

/** A change of many deliveries, or of one. */
export interface EndpointRepair {
  readonly action: 'retry' | 'cancel';
  readonly endpoint: string;
  readonly event?: string;
  readonly dryRun?: boolean;
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
export async function repair(
  body: EndpointRepair,
  onProgress: (progress: Progress) => void,
  signal: AbortSignal,
): Promise<number> {
  return (await run(body, onProgress, signal)).changed;
}

/** How many deliveries it would change now. */
export async function count(body: EndpointRepair, signal: AbortSignal): Promise<number> {
  return (await run({ ...body, dryRun: true }, () => undefined, signal)).total;
}

async function run(
  body: EndpointRepair,
  onProgress: (progress: Progress) => void,
  signal: AbortSignal,
): Promise<RepairProgressLine> {
  const headers = { 'Content-Type': 'application/json' };
  const response = await request('/outgoing/repairs', { method: 'POST', headers, body: JSON.stringify(body), signal });
  let last: RepairProgressLine | undefined;
  for await (const line of readLines(response)) {
    last = JSON.parse(line) as RepairProgressLine;
    if (last.error !== undefined) throw new ApiError(0, last.error);
    onProgress({ done: last.changed, total: last.total });
  }
  if (last?.done !== true) throw new ApiError(0, INTERRUPTED);
  return last;
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
