/** Reads the provider's section. Its code is a separate bundle, which is loaded only if the config has the section. */
import type { Config } from '../config/schema/config.ts';
import { readTls, type TlsRead } from '../config/sources/secrets.ts';
import type { Clock } from '../core/clock.ts';
import type { Problem } from '../core/problem.ts';
import type { Provider, ProviderParts } from '../provider/runtime/provider.ts';
import type { ProviderSettings } from '../provider/settings/read-settings.ts';

/** The settings of the provider's section; do not use it if there is an error among the problems. */
export interface ProviderRead {
  readonly settings: ProviderSettings;
  readonly tls: TlsRead | undefined;
  readonly problems: readonly Problem[];
  /** Connects to the databases of the queue and of the outbox. */
  readonly testDatabases: () => ReturnType<typeof Provider.testDatabases>;
  readonly create: (parts: ProviderParts) => Provider;
}

function load(): Promise<typeof import('../provider/runtime/provider.ts')> {
  return import('../provider/runtime/provider.ts');
}

/** Reads the section; undefined if there is none. */
export async function readProvider({ provider }: Config, clock: Clock): Promise<ProviderRead | undefined> {
  if (provider === undefined) return undefined;
  const { Provider } = await load();
  const settings = await Provider.readSettings(provider);
  const tls = await readTls(provider.tls, ['provider', 'tls'], clock);
  return {
    settings,
    tls,
    problems: [...settings.problems, ...(tls?.problems ?? [])],
    testDatabases: () => Provider.testDatabases(settings),
    create: (parts) => new Provider(settings, parts),
  };
}
