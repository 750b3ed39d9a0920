/** Reloads the config and the files that it refers to when they change, one reload at a time, in order; with several workers, in all of them. */
import type { Config } from '../config/schema/config.ts';
import { type Fingerprints, type Watch, watchFiles } from '../config/sources/watch.ts';
import { toErrorText } from '../core/errors.ts';
import { error, type LocatedProblem, locate, type Problem, toLogFields } from '../core/problem.ts';
import { runDetached } from '../core/safe-events.ts';
import { type PreparedConfig, type PrepareResult, prepare } from './check.ts';
import type { GateContext } from './context.ts';
import type { Reloads } from './reloads.ts';
import { type ReloadParts, reloadFiles, reloadTls } from './watched-sources.ts';
import { NO_OTHER_WORKERS, type OtherWorkers } from './workers/messages.ts';

const FIXED_SECTIONS = [
  'workers',
  'listen',
  'proxy',
  'authz',
  'admin',
  'store',
  'limits',
  'shutdown',
  'explain',
  'journal',
  'tracing',
  'log',
] as const;
/** Keys of the provider's section that a reload can change. */
const RELOADED_PROVIDER_KEYS: ReadonlySet<string> = new Set([
  'schedule',
  'timeout',
  'concurrency',
  'endpoints',
  'token',
  'rotationGrace',
  'encryption',
]);

/** The reloads of a gate. */
export class ConfigReloads {
  readonly #parts;
  readonly #others: OtherWorkers;
  #watch: Watch | undefined;
  /** Watches the files that a rejected config refers to: one that appears later, as a Secret may, can make it valid. */
  #rejectedWatch: Watch | undefined;
  #reloading: Promise<unknown> = Promise.resolve();
  /** Of a worker other than the first: it is applied when all workers have read it. */
  #next: PreparedConfig | undefined;

  constructor(parts: {
    readonly context: GateContext;
    readonly reloads: Reloads;
    readonly current: () => PreparedConfig;
    /** Activates a config in one turn of the event loop. */
    readonly apply: (next: PreparedConfig) => void;
    readonly toReloadParts: () => ReloadParts;
  }) {
    this.#parts = parts;
    this.#others = parts.context.others ?? NO_OTHER_WORKERS;
  }

  /** Watches the files of the active config. */
  async watch(seen: Fingerprints): Promise<void> {
    this.#watch?.close();
    this.#watch = await this.#watchFor(seen, (changed) => this.#onFiles(changed));
  }

  /** Reloads the config; on any error the old one stays active. */
  async reload(): Promise<void> {
    await this.#inTurn(() => this.#reload());
  }

  close(): void {
    this.#watch?.close();
    this.#rejectedWatch?.close();
  }

  /** Reads the config for `applyNext`; resolves with the reasons why it cannot be applied. `hash`: of the config that the first worker read. */
  async prepareNext(hash: string): Promise<readonly LocatedProblem[]> {
    const { file } = this.#parts.context;
    this.#next = undefined;
    const next = await this.#prepare();
    if (next.loaded === undefined) return next.problems;
    const fixed = findFixedChange(this.#parts.current().loaded.config, next.loaded.config);
    if (fixed !== undefined) return [locate(fixed, file)];
    if (next.loaded.hash !== hash) return [locate(error([], 'it changed while the workers read it; it is read again'), file)];
    this.#next = next;
    return [];
  }

  /** Applies the config that `prepareNext` read. */
  async applyNext(): Promise<void> {
    if (this.#next === undefined) throw new Error('the worker has not read a config that it could apply');
    this.#parts.apply(this.#next);
    this.#next = undefined;
    await reloadTls(undefined, this.#parts.toReloadParts());
  }

  /** False if the old config stays active. */
  async #reload(): Promise<boolean> {
    const { context, current, apply, toReloadParts } = this.#parts;
    const { file, logger } = context;
    try {
      const next = await this.#prepare();
      this.#rejectedWatch?.close();
      if (next.loaded === undefined) {
        this.#rejectedWatch = await this.#watchFor(next.seen, () => this.reload());
        return this.#reject(next.problems);
      }
      const fixed = findFixedChange(current().loaded.config, next.loaded.config);
      if (fixed !== undefined) return this.#reject([locate(fixed, file)]);
      // After the first worker: if a file changes meanwhile, the fingerprints of this one show it, and all read it again.
      const refused = await this.#others.prepare(next.loaded.hash);
      if (refused.length > 0) {
        this.#rejectedWatch = await this.#watchFor(next.seen, () => this.reload());
        return this.#reject(refused);
      }
      await this.#others.commit(() => apply(next));
      await this.watch(next.seen);
      this.#watch?.recheck(await reloadTls(undefined, toReloadParts()));
      logger.info('config_reloaded', { hash: next.loaded.hash, routes: next.loaded.config.routes.length });
      for (const problem of next.problems) logger.warn('config_warning', toLogFields(problem));
      return true;
    } catch (thrown) {
      return this.#reject([locate(error([], toErrorText(thrown)), file)]);
    }
  }

  #prepare(): Promise<PrepareResult> {
    const { file, overrides, clock, place } = this.#parts.context;
    return prepare(file, clock, overrides, place);
  }

  #reject(problems: readonly LocatedProblem[]): false {
    this.#parts.reloads.fail(problems);
    for (const problem of problems) this.#parts.context.logger.error('config_reload_failed', toLogFields(problem));
    return false;
  }

  #watchFor(seen: Fingerprints, onChange: (changed: readonly string[]) => Promise<void>): Promise<Watch> {
    const { clock, logger } = this.#parts.context;
    return watchFiles(seen, clock, {
      onChange: (changed) => runDetached(onChange(changed)),
      onFailure: (message) => logger.warn('watch_failed', { message }),
    });
  }

  async #onFiles(changed: readonly string[]): Promise<void> {
    const { context, toReloadParts } = this.#parts;
    await this.#inTurn(async () => {
      // Users that were removed together with a change of the config lose access even if the config is rejected.
      if (changed.includes(context.file) && (await this.#reload())) return;
      this.#watch?.recheck(await reloadFiles(changed, toReloadParts()));
      await this.#others.reloadFiles(changed);
    });
  }

  /** Runs one reload after the other, also after one that threw. */
  #inTurn(reload: () => Promise<unknown>): Promise<unknown> {
    this.#reloading = this.#reloading.catch(() => undefined).then(reload);
    return this.#reloading;
  }
}

const RESTART = 'restart sidegate, or revert the change';

/** Why `after` cannot replace `before` while the gate runs; undefined if it can. */
function findFixedChange(before: Config, after: Config): Problem | undefined {
  const changed = FIXED_SECTIONS.filter((section) => JSON.stringify(before[section]) !== JSON.stringify(after[section]));
  const [path] = changed;
  if (path === undefined) return findFixedProviderChange(before, after);
  return error([path], `changing ${changed.join(', ')} requires a restart`, RESTART);
}

/** The data port exists only if there are routes, and the provider's queue and ports are opened once. */
function findFixedProviderChange(before: Config, after: Config): Problem | undefined {
  if ((before.routes.length === 0) !== (after.routes.length === 0))
    return error(['routes'], 'adding the first route, or removing the last one, requires a restart', RESTART);
  const [old, next] = [new Map(Object.entries(before.provider ?? {})), new Map(Object.entries(after.provider ?? {}))];
  if ((before.provider === undefined) !== (after.provider === undefined))
    return error(['provider'], 'adding or removing provider requires a restart', RESTART);
  if (before.provider?.encryption !== undefined && after.provider?.encryption === undefined)
    return error(['provider'], 'removing provider.encryption requires a restart', RESTART);
  const fixed = [...old.keys(), ...next.keys()].filter((key) => !RELOADED_PROVIDER_KEYS.has(key));
  const changed = fixed.find((key) => JSON.stringify(old.get(key)) !== JSON.stringify(next.get(key)));
  if (changed === undefined) return undefined;
  return error(['provider', changed], `changing provider.${changed} requires a restart`, RESTART);
}
