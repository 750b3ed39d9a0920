/** The names in the config that were changed. The old names remain valid, with a warning. */
import type { Renaming } from './renamings.ts';

const WEBHOOK = ['routes', '*', 'webhook'];

/** All renamings, for docs/config.md as well. */
export const CONFIG_RENAMINGS: readonly Renaming[] = [
  ...['listen', 'proxy', 'authz'].map(
    (port): Renaming => ({ kind: 'key', at: [port, 'tls'], old: 'more', name: 'additionalCertificates' }),
  ),
  ...['dedup', 'order'].map(
    (section): Renaming => ({ kind: 'key', at: [...WEBHOOK, section], old: 'waitAtMost', name: 'maxWait' }),
  ),
  { kind: 'value', at: [...WEBHOOK, 'order'], key: 'onStale', old: 'answer', name: 'acknowledge' },
];
