/** `sidegate deliveries`: lists, shows and repairs the deliveries of a running provider. */
import { usageError } from '../core/errors.ts';
import { toPrintable } from '../core/text.ts';
import type { OutgoingDelivery, OutgoingDeliveryDetail } from '../provider/api/schemas.ts';
import { ApiFailure, readPages, toQuery, toSegment } from './api-client.ts';
import { type ApiCall, type ApiCommand, type ApiGroup, FORMAT } from './api-command.ts';
import { type ApiOption, FILTER, type FilterOptions, toFilter } from './api-options.ts';
import { type Column, formatMembers, formatOutcome, formatTable, ProgressOutput } from './api-output.ts';
import { COLLECT } from './base-program.ts';
import { confirm, toCount } from './input.ts';
import { EXIT, type Io } from './io.ts';

interface DeliveriesOptions extends FilterOptions {
  readonly state?: readonly string[];
  readonly limit: string;
  readonly dryRun?: true;
  readonly yes?: true;
}

const COLUMNS: readonly Column<OutgoingDelivery>[] = [
  ['ID', ({ id }) => id],
  ['TYPE', ({ type }) => type],
  ['TENANT', ({ tenant = '' }) => tenant],
  ['STATE', ({ state }) => state],
  ['ATTEMPTS', ({ attempts }) => String(attempts)],
  ['ACCEPTED', ({ createdAt }) => createdAt],
  ['NEXT ATTEMPT', ({ due }) => due ?? ''],
  ['LAST OUTCOME', ({ lastAttempt }) => (lastAttempt === undefined ? '' : formatOutcome(lastAttempt))],
];

const list: ApiCommand<DeliveriesOptions> = {
  description: 'list deliveries, newest event first',
  options: [
    ...FILTER,
    FORMAT,
    ['--state <state>', 'waiting, delivered, dead or skipped; repeatable', COLLECT],
    ['--limit <number>', 'maximum number of deliveries', '50'],
  ],
  async run({ client, options, printTable }) {
    const limit = toCount(options.limit, '--limit');
    const query = toQuery({ ...toFilter(options), state: options.state });
    return printTable(await readPages<OutgoingDelivery>(client, '/deliveries', query, { limit }), COLUMNS);
  },
};

function formatDelivery({ history, ...found }: OutgoingDeliveryDetail): string {
  const members = formatMembers([
    ['event', found.event],
    ['endpoint', found.endpoint],
    ['type', found.type],
    ['tenant', found.tenant],
    ['state', found.state],
    ['accepted', found.createdAt],
    ['next attempt', found.due],
    ['settled', found.settledAt],
    ['attempts', String(found.attempts)],
  ]);
  if (history.length === 0) return members;
  const attempts = formatTable(history, [
    ['AT', ({ at }) => at],
    ['DURATION', ({ durationMs }) => `${Math.round(durationMs)} ms`],
    ['OUTCOME', formatOutcome],
    ['DETAIL', ({ detail = '' }) => detail],
  ]);
  return `${members}\n${attempts}`;
}

type RepairVerb = 'retry' | 'cancel' | 'purge' | 'recover';

/** Before a number of deliveries, or an ID. */
const DONE = { retry: 'retrying', cancel: 'canceled', purge: 'purged', recover: 'recovered' } as const;
/** Of a single delivery that was not changed. */
const UNCHANGED = { cancel: 'does not wait', purge: 'is neither dead nor skipped', recover: '' } as const;

const STATE: ApiOption = ['--state <state>', 'waiting, dead, skipped or delivered; repeatable', COLLECT];

export const DELIVERIES: ApiGroup<DeliveriesOptions> = {
  description: 'list, show and repair the deliveries of a running provider',
  api: 'provider or admin',
  commands: {
    list,
    show: {
      description: 'show a delivery and its attempts',
      argument: ['<id>', 'EVENT~ENDPOINT'],
      options: [FORMAT],
      run: async ({ client, print }, id: string) =>
        print((await client.request('GET', toDeliveryPath(id))) as OutgoingDeliveryDetail, formatDelivery),
    },
    retry: toRepair(
      'retry',
      'send one delivery now, or all that match, waiting ones included; default: dead and skipped ones',
      STATE,
    ),
    cancel: toRepair('cancel', 'skip one waiting delivery, or all that match; they can be retried later'),
    purge: toRepair('purge', 'remove one delivery, or all that match; default: dead and skipped ones', STATE),
    recover: toRepair('recover', 'create the deliveries of events that an endpoint selects and that were never for it'),
  },
};

function toRepair(action: RepairVerb, description: string, ...more: readonly ApiOption[]): ApiCommand<DeliveriesOptions> {
  return {
    description,
    ...(action !== 'recover' && { argument: ['[id]', 'EVENT~ENDPOINT'] as const }),
    options: [...FILTER, ['--dry-run', 'only count'], ['--yes', 'do not ask'], ...more],
    run: (call, id?: string) => repair(action, id, call),
  };
}

type RepairCall = ApiCall<DeliveriesOptions>;

async function repair(action: RepairVerb, id: string | undefined, call: RepairCall): Promise<number> {
  const { options, io, printLine } = call;
  const filter = toFilter(options);
  const isSelecting = Object.keys(filter).length > 0;
  if (id !== undefined) {
    if (isSelecting || options.state !== undefined || options.dryRun)
      throw usageError('use either the ID of a delivery or the options that select several');
    return action === 'retry' ? retryOne(id, call) : repairOne(action, id, call);
  }
  if (action === 'recover' && (options.endpoint === undefined || options.from === undefined))
    throw usageError('use --endpoint and --from: the endpoint that missed events, and when the oldest of them was accepted');
  if (!isSelecting) throw usageError('select deliveries: name one, or use --endpoint, --event, --tenant, --type, --from or --to');
  const body = { action, ...filter, ...(options.state !== undefined && { states: options.state }) };
  const ended = await preview(action, body, call);
  if (ended !== undefined) return ended;
  const last = await follow(action, body, call);
  if (last.done !== true) return reportEnd(last, io);
  return printLine(`${DONE[action]} ${toDeliveries(last.changed)}${describeExcluded(last)}`);
}

/** Counts first, unless it is confirmed already; returns the exit code if the command ends here. */
async function preview(action: RepairVerb, body: object, call: RepairCall): Promise<number | undefined> {
  const { options, io, printLine } = call;
  if (options.yes && !options.dryRun) return undefined;
  const counted = await follow(action, { ...body, dryRun: true }, call);
  if (counted.done !== true) return reportEnd(counted, io);
  const text = `${action} ${toDeliveries(counted.total)}${describeExcluded(counted)}`;
  if (options.dryRun) return printLine(`this would ${text}`);
  return (await confirm(`this will ${text}`, io)) ? undefined : EXIT.failed;
}

async function retryOne(id: string, { client, printLine }: RepairCall): Promise<number> {
  await client.request('POST', `${toDeliveryPath(id)}/retry`);
  return printLine(`${DONE.retry} ${id}`);
}

async function repairOne(action: Exclude<RepairVerb, 'retry'>, id: string, call: RepairCall): Promise<number> {
  const last = await follow(action, { action, ...parseDeliveryId(id) }, call);
  if (last.done !== true) return reportEnd(last, call.io);
  if (last.changed > 0) return call.printLine(`${DONE[action]} ${id}`);
  call.io.stderr(`sidegate: ${toPrintable(id)} ${UNCHANGED[action]}, or does not exist\n`);
  return EXIT.failed;
}

/** Throws for a text that is not EVENT~ENDPOINT. */
function parseDeliveryId(id: string): { readonly event: string; readonly endpoint: string } {
  const [event = '', endpoint, ...rest] = id.split('~');
  if (endpoint === undefined || rest.length > 0)
    throw usageError(`${id} is not the ID of a delivery: write EVENT~ENDPOINT, as sidegate deliveries list shows it`);
  return { event, endpoint };
}

/** The path of a delivery. */
function toDeliveryPath(id: string): string {
  const { event, endpoint } = parseDeliveryId(id);
  return `/deliveries/${toSegment(event)}~${toSegment(endpoint)}`;
}

/** Returns the last line, with the error of a connection that broke. */
async function follow(action: RepairVerb, body: object, { client, io }: RepairCall): Promise<RepairLine> {
  const progress = new ProgressOutput(io, DONE[action]);
  let last: RepairLine = { changed: 0, total: 0 };
  const isCounting = 'dryRun' in body;
  try {
    for await (const line of client.stream('/repairs', body)) {
      if (!isRepairLine(line)) throw client.toStranger();
      last = line;
      if (!isCounting && last.total > 1) progress.show(last.changed, last.total);
    }
  } catch (thrown) {
    // Before the first line, nothing was changed.
    if (!(thrown instanceof ApiFailure) || last.total === 0) throw thrown;
    return { ...last, done: false, error: thrown.message };
  } finally {
    progress.end();
  }
  return last;
}

function reportEnd({ changed, total, error }: RepairLine, io: Io): number {
  const why = error === undefined ? '' : `: ${toPrintable(String(error))}`;
  io.stderr(`sidegate: the command ended after ${changed} of ${toDeliveries(total)}${why}; run it again to continue\n`);
  return EXIT.failed;
}

function describeExcluded({ excluded }: RepairLine): string {
  if (typeof excluded !== 'number' || excluded === 0) return '';
  return `; ${excluded} more cannot be sent, as their endpoint does not exist, is disabled, or has another tenant`;
}

function toDeliveries(deliveries: number): string {
  return deliveries === 1 ? '1 delivery' : `${deliveries} deliveries`;
}

/** How far a repair is. */
interface RepairLine {
  readonly changed: number;
  readonly total: number;
  readonly excluded?: unknown;
  readonly done?: unknown;
  readonly error?: unknown;
}

/** Another server could send text that changes what a terminal shows. */
function isRepairLine(line: unknown): line is RepairLine {
  const { changed, total } = (line ?? {}) as Partial<RepairLine>;
  return typeof changed === 'number' && typeof total === 'number';
}
