/** Whether pods still have the sidecar that the injector would make today. */
import { LIBRARY_HASH } from '../injector/status.ts';
import type { Facts } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import { findSidecar } from './sidecar.ts';
import { nameOf, restartOf, type Workload } from './workloads.ts';

/** All findings of the kind. Sidecars without a status were not made by an injector, and are their owners' matter. */
export function judgeStale(workload: Workload, { current }: Facts): Finding[] {
  const made = workload.pods.flatMap((pod) => {
    const status = findSidecar(pod)?.status;
    return status === undefined ? [] : [{ name: pod.metadata.name, status }];
  });
  const found: Finding[] = [];
  const old = made.filter(({ status }) => current.version !== undefined && status.version !== current.version);
  if (old.length > 0) {
    const versions = [...new Set(old.map(({ status }) => status.version))];
    const message = `the sidecars of ${listNames(old.map(({ name }) => name))} are of ${listNames(versions)}; the injector is ${current.version}`;
    const isOfLibrary = old.some(({ status }) => status.hash === LIBRARY_HASH);
    const mend = isOfLibrary
      ? `upgrade the dependency sidegate-lib of the chart that makes ${nameOf(workload)} to ${current.version}, and the release with it`
      : restartOf(workload);
    found.push(finding('version-stale', message, mend));
  }
  const other = made.filter(({ status }) => current.hash !== undefined && ![current.hash, LIBRARY_HASH].includes(status.hash));
  if (other.length > 0) {
    const message = `the sidecars of ${listNames(other.map(({ name }) => name))} were made with other defaults than the injector's present ones`;
    found.push(finding('settings-stale', message, restartOf(workload)));
  }
  return found;
}
