/** `sidegate deliveries`: lists, shows and repeats the deliveries of a running provider. */
import type { Command } from 'commander';
import { usageError } from '../core/errors.ts';
import { type ApiClient, ApiFailure, readPages, toSegment } from './api-client.ts';
import { type ProviderOptions, runProviderCommand, withConsole, withFormat, withProvider } from './api-options.ts';
import { type AttemptView, formatJson, formatMembers, formatOutcome, formatTable, Progress, toPrintable } from './api-output.ts';
import { COLLECT } from './base-program.ts';
import { toCount, toTime } from './input.ts';
import { EXIT, type Io } from './io.ts';

interface FilterOptions {
  readonly endpoint?: string;
  readonly event?: string;
  readonly type?: string;
  readonly state?: readonly string[];
  readonly from?: string;
  readonly to?: string;
}

interface ListOptions extends FilterOptions {
  readonly format: string;
  readonly limit: string;
}

interface DeliveryView {
  readonly id: string;
  readonly event: string;
  readonly endpoint: string;
  readonly type: string;
  readonly channel?: string;
  readonly state: string;
  readonly createdAt: string;
  readonly attempts: number;
  readonly due?: string;
  readonly settledAt?: string;
  readonly lastAttempt?: AttemptView;
}

const NAME = 'deliveries';
const PATH = '/deliveries';

/** Adds the commands. */
export function addDeliveries(program: Command, io: Io, setExit: (code: number) => void): void {
  const group = program.command(NAME).description('list, show and repeat the deliveries of a running provider');
  const run = (options: ProviderOptions, action: (client: ApiClient) => Promise<number>): Promise<void> =>
    runProviderCommand(NAME, options, io, action).then(setExit);
  withFormat(withFilter(withOutgoing(group.command('list').description('list deliveries, newest event first'))))
    .option('--type <type>', 'only events of this type')
    .option('--state <state>', 'waiting, delivered, dead or skipped; repeatable', COLLECT)
    .option('--limit <number>', 'maximum number of deliveries', '50')
    .action((options) => run(options, (client) => list(client, options, io)));
  withFormat(withOutgoing(group.command('show').description('show a delivery and its attempts')))
    .argument('<id>', 'EVENT~ENDPOINT')
    .action((id, options) => run(options, (client) => show(client, id, options, io)));
  withFilter(
    withOutgoing(group.command('replay').description('repeat one delivery, or all that match; default: dead and skipped ones')),
  )
    .argument('[id]', 'EVENT~ENDPOINT')
    .option('--state <state>', 'dead, skipped or delivered; repeatable', COLLECT)
    .action((id, options) => run(options, (client) => replay(client, id, options, io)));
}

/** The console API has all operations of these commands. */
function withOutgoing(command: Command): Command {
  return withConsole(withProvider(command));
}

function withFilter(command: Command): Command {
  return command
    .option('--endpoint <id>', 'only deliveries to this endpoint; inbox:ROUTE for those of an inbox')
    .option('--event <id>', 'only deliveries of this event')
    .option('--from <time>', 'only events accepted since then: RFC 3339, or a duration before now such as 2h')
    .option('--to <time>', 'only events accepted before then');
}

async function list(client: ApiClient, options: ListOptions, io: Io): Promise<number> {
  const { state = [], format, type } = options;
  const limit = toCount(options.limit, '--limit');
  const query = new URLSearchParams({ ...toFilter(options), ...(type !== undefined && { type }) });
  for (const each of state) query.append('state', each);
  const all = await readPages<DeliveryView>(client, PATH, query, { limit, position: 'iterator' });
  const table = () =>
    formatTable(all, [
      ['ID', ({ id }) => id],
      ['TYPE', ({ type: name }) => name],
      ['STATE', ({ state: name }) => name],
      ['ATTEMPTS', ({ attempts }) => String(attempts)],
      ['ACCEPTED', ({ createdAt }) => createdAt],
      ['NEXT ATTEMPT', ({ due }) => due ?? ''],
      ['LAST OUTCOME', ({ lastAttempt }) => (lastAttempt === undefined ? '' : formatOutcome(lastAttempt))],
    ]);
  io.stdout(format === 'json' ? formatJson(all) : table());
  return EXIT.ok;
}

async function show(client: ApiClient, id: string, { format }: Pick<ListOptions, 'format'>, io: Io): Promise<number> {
  const found = (await client.request('GET', toPath(id))) as DeliveryView & { history: readonly AttemptView[] };
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
      ['channel', found.channel],
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

async function replay(client: ApiClient, id: string | undefined, options: FilterOptions, io: Io): Promise<number> {
  if (id !== undefined) return replayOne(client, id, options, io);
  const filter = toFilter(options);
  if (Object.keys(filter).length === 0)
    throw usageError('select deliveries: name one, or use --endpoint, --event, --from or --to');
  const progress = new Progress(io);
  let last: ReplayLine = { replayed: 0, total: 0 };
  const body = { ...filter, ...(options.state !== undefined && { states: options.state }) };
  try {
    for await (const line of client.stream('/replays', body)) {
      if (!isReplayLine(line)) throw client.toStranger();
      last = line;
      progress.show(last.replayed, last.total);
    }
  } catch (thrown) {
    // Before the first line, nothing was repeated.
    if (!(thrown instanceof ApiFailure) || last.total === 0) throw thrown;
    last = { ...last, error: thrown.message };
  } finally {
    progress.end();
  }
  if (last.done === true) {
    io.stdout(`repeating ${last.replayed} deliveries\n`);
    return EXIT.ok;
  }
  const why = last.error === undefined ? '' : `: ${toPrintable(String(last.error))}`;
  io.stderr(
    `sidegate ${NAME}: the replay ended after ${last.replayed} of ${last.total}${why}; run the command again to continue\n`,
  );
  return EXIT.failed;
}

/** How far a replay is. */
interface ReplayLine {
  readonly replayed: number;
  readonly total: number;
  readonly done?: unknown;
  readonly error?: unknown;
}

/** Another server could send text that changes what a terminal shows. */
function isReplayLine(line: unknown): line is ReplayLine {
  const { replayed, total } = (line ?? {}) as Partial<ReplayLine>;
  return typeof replayed === 'number' && typeof total === 'number';
}

async function replayOne(client: ApiClient, id: string, options: FilterOptions, io: Io): Promise<number> {
  if (Object.keys(toFilter(options)).length > 0 || options.state !== undefined)
    throw usageError('use either the ID of a delivery or the options that select several');
  const { replayed } = (await client.request('POST', `${toPath(id)}/replay`)) as { replayed: boolean };
  const shown = toPrintable(id);
  io.stdout(replayed ? `repeating ${shown}\n` : `${shown} is waiting for its next attempt already\n`);
  return EXIT.ok;
}

function toFilter({ endpoint, event, from, to }: FilterOptions): Record<string, string> {
  const given = { endpoint, event, from: toTime(from, '--from'), to: toTime(to, '--to') };
  return Object.fromEntries(Object.entries(given).filter((entry): entry is [string, string] => entry[1] !== undefined));
}

function toPath(id: string): string {
  const [event = '', endpoint, ...rest] = id.split('~');
  if (endpoint === undefined || rest.length > 0)
    throw usageError(`${id} is not the ID of a delivery: write EVENT~ENDPOINT, as sidegate deliveries list shows it`);
  return `${PATH}/${toSegment(event)}~${toSegment(endpoint)}`;
}
