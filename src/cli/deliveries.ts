/** `sidegate deliveries`: lists, shows and repairs the deliveries of a running provider. */
import type { Command } from 'commander';
import { usageError } from '../core/errors.ts';
import { formatJson, toPrintable } from '../core/text.ts';
import type { OutgoingDelivery, OutgoingDeliveryDetail } from '../provider/api/schemas.ts';
import { type ApiClient, ApiFailure, readPages } from './api-client.ts';
import {
  type FilterOptions,
  type ProviderOptions,
  parseDeliveryId,
  runProviderCommand,
  toDeliveryPath,
  toFilter,
  withConsole,
  withFilter,
  withFormat,
  withProvider,
} from './api-options.ts';
import { formatMembers, formatOutcome, formatTable, ProgressOutput } from './api-output.ts';
import { COLLECT } from './base-program.ts';
import { confirm, toCount } from './input.ts';
import { EXIT, type Io } from './io.ts';

/** Adds the commands. */
export function addDeliveries(program: Command, io: Io, setExit: (code: number) => void): void {
  const group = program.command('deliveries').description('list, show and repair the deliveries of a running provider');
  const run = (options: ProviderOptions, action: (client: ApiClient) => Promise<number>): Promise<void> =>
    runProviderCommand(options, io, action).then(setExit);
  withFormat(withFilter(withOutgoing(group.command('list').description('list deliveries, newest event first'))))
    .option('--state <state>', 'waiting, delivered, dead or skipped; repeatable', COLLECT)
    .option('--limit <number>', 'maximum number of deliveries', '50')
    .action((options) => run(options, (client) => list(client, options, io)));
  withFormat(withOutgoing(group.command('show').description('show a delivery and its attempts')))
    .argument('<id>', 'EVENT~ENDPOINT')
    .action((id, options) => run(options, (client) => show(client, id, options, io)));
  addRepairs(group, withOutgoing, io, (options) => (action) => run(options, action));
}

/** The console API has all operations of these commands. */
function withOutgoing(command: Command): Command {
  return withConsole(withProvider(command));
}

async function list(
  client: ApiClient,
  options: FilterOptions & {
    readonly state?: readonly string[];
    readonly format: string;
    readonly limit: string;
  },
  io: Io,
): Promise<number> {
  const { state = [], format } = options;
  const limit = toCount(options.limit, '--limit');
  const query = new URLSearchParams(toFilter(options));
  for (const each of state) query.append('state', each);
  const all = await readPages<OutgoingDelivery>(client, '/deliveries', query, { limit, position: 'iterator' });
  const table = () =>
    formatTable(all, [
      ['ID', ({ id }) => id],
      ['TYPE', ({ type: name }) => name],
      ['TENANT', ({ tenant = '' }) => tenant],
      ['STATE', ({ state: name }) => name],
      ['ATTEMPTS', ({ attempts }) => String(attempts)],
      ['ACCEPTED', ({ createdAt }) => createdAt],
      ['NEXT ATTEMPT', ({ due }) => due ?? ''],
      ['LAST OUTCOME', ({ lastAttempt }) => (lastAttempt === undefined ? '' : formatOutcome(lastAttempt))],
    ]);
  io.stdout(format === 'json' ? formatJson(all) : table());
  return EXIT.ok;
}

async function show(client: ApiClient, id: string, { format }: { readonly format: string }, io: Io): Promise<number> {
  const found = (await client.request('GET', toDeliveryPath(id))) as OutgoingDeliveryDetail;
  if (format === 'json') {
    io.stdout(formatJson(found));
    return EXIT.ok;
  }
  const { history } = found;
  io.stdout(
    formatMembers([
      ['event', found.event],
      ['endpoint', found.endpoint],
      ['type', found.type],
      ['tenant', found.tenant],
      ['state', found.state],
      ['accepted', found.createdAt],
      ['next attempt', found.due],
      ['settled', found.settledAt],
      ['attempts', String(found.attempts)],
    ]),
  );
  if (history.length === 0) return EXIT.ok;
  const table = formatTable(history, [
    ['AT', ({ at }) => at],
    ['DURATION', ({ durationMs }) => `${Math.round(durationMs)} ms`],
    ['OUTCOME', formatOutcome],
    ['DETAIL', ({ detail = '' }) => detail],
  ]);
  io.stdout(`\n${table}`);
  return EXIT.ok;
}

/** How the command speaks about an action. */
interface ActionTexts {
  readonly description: string;
  /** Before a number of deliveries, or an ID. */
  readonly done: string;
  /** Of a single delivery that was not changed. */
  readonly unchanged: string;
}

const ACTIONS = {
  retry: {
    description: 'send one delivery now, or all that match, waiting ones included; default: dead and skipped ones',
    done: 'retrying',
    unchanged: '',
  },
  cancel: {
    description: 'skip one waiting delivery, or all that match; they can be retried later',
    done: 'canceled',
    unchanged: 'does not wait',
  },
  purge: {
    description: 'remove one delivery, or all that match; default: dead and skipped ones',
    done: 'purged',
    unchanged: 'is neither dead nor skipped',
  },
  recover: {
    description: 'create the deliveries of events that an endpoint selects and that were never for it',
    done: 'recovered',
    unchanged: '',
  },
} as const satisfies Record<string, ActionTexts>;
type RepairVerb = keyof typeof ACTIONS;

/** Adds the commands to a group; `withApi` adds the options of the API. */
function addRepairs(
  group: Command,
  withApi: (command: Command) => Command,
  io: Io,
  toRun: (options: never) => (action: (client: ApiClient) => Promise<number>) => Promise<void>,
): void {
  for (const action of Object.keys(ACTIONS) as RepairVerb[]) {
    const command = withFilter(withApi(group.command(action).description(ACTIONS[action].description)))
      .option('--dry-run', 'only count')
      .option('--yes', 'do not ask');
    if (action !== 'recover') command.argument('[id]', 'EVENT~ENDPOINT');
    if (action === 'retry' || action === 'purge')
      command.option('--state <state>', 'waiting, dead, skipped or delivered; repeatable', COLLECT);
    command.action((...given: unknown[]) => {
      const [id, options] = action === 'recover' ? [undefined, given[0]] : [given[0], given[1]];
      return toRun(options as never)((client) =>
        repair({ action, id: id as string | undefined, options: options as RepairCommand['options'] }, client, io),
      );
    });
  }
}

/** A command with its arguments. */
interface RepairCommand {
  readonly action: RepairVerb;
  readonly id: string | undefined;
  readonly options: FilterOptions & {
    readonly state?: readonly string[];
    readonly dryRun?: true;
    readonly yes?: true;
  };
}

async function repair(given: RepairCommand, client: ApiClient, io: Io): Promise<number> {
  const { action, id, options } = given;
  const filter = toFilter(options);
  const isSelecting = Object.keys(filter).length > 0;
  if (id !== undefined) {
    if (isSelecting || options.state !== undefined || options.dryRun)
      throw usageError('use either the ID of a delivery or the options that select several');
    return repairOne(action, id, client, io);
  }
  if (action === 'recover' && (options.endpoint === undefined || options.from === undefined))
    throw usageError('use --endpoint and --from: the endpoint that missed events, and when the oldest of them was accepted');
  if (!isSelecting) throw usageError('select deliveries: name one, or use --endpoint, --event, --tenant, --type, --from or --to');
  const body = { action, ...filter, ...(options.state !== undefined && { states: options.state }) };
  if (options.dryRun) return count(action, body, client, io);
  if (!options.yes && !(await isConfirmed(action, body, client, io))) return EXIT.failed;
  const last = await follow(action, body, client, io);
  if (last.done !== true) return reportEnd(last, io);
  io.stdout(`${ACTIONS[action].done} ${toDeliveries(last.changed)}${describeExcluded(last)}\n`);
  return EXIT.ok;
}

async function repairOne(action: RepairVerb, id: string, client: ApiClient, io: Io): Promise<number> {
  const shown = toPrintable(id);
  if (action === 'retry') {
    await client.request('POST', `${toDeliveryPath(id)}/retry`);
    io.stdout(`${ACTIONS[action].done} ${shown}\n`);
    return EXIT.ok;
  }
  const last = await follow(action, { action, ...parseDeliveryId(id) }, client, io);
  if (last.done !== true) return reportEnd(last, io);
  const { done, unchanged } = ACTIONS[action];
  if (last.changed > 0) io.stdout(`${done} ${shown}\n`);
  else io.stderr(`sidegate: ${shown} ${unchanged}, or does not exist\n`);
  return last.changed > 0 ? EXIT.ok : EXIT.failed;
}

async function count(action: RepairVerb, body: object, client: ApiClient, io: Io): Promise<number> {
  const last = await follow(action, { ...body, dryRun: true }, client, io);
  if (last.done !== true) return reportEnd(last, io);
  io.stdout(`this would ${action} ${toDeliveries(last.total)}${describeExcluded(last)}\n`);
  return EXIT.ok;
}

async function isConfirmed(action: RepairVerb, body: object, client: ApiClient, io: Io): Promise<boolean> {
  const counted = await follow(action, { ...body, dryRun: true }, client, io);
  if (counted.done !== true) {
    reportEnd(counted, io);
    return false;
  }
  return confirm(`this will ${action} ${toDeliveries(counted.total)}${describeExcluded(counted)}`, io);
}

/** Returns the last line, with the error of a connection that broke. */
async function follow(action: RepairVerb, body: object, client: ApiClient, io: Io): Promise<RepairLine> {
  const progress = new ProgressOutput(io, ACTIONS[action].done);
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
