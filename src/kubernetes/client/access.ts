/** How a cluster is reached, whoever read it: the mounted service account or a kubeconfig. */

/** What a request shows for itself. Handed out for one request at a time; where it lies in between it is a Secret. */
export interface Credentials {
  readonly token?: string;
  /** PEM, with its key. */
  readonly cert?: string;
  readonly key?: string;
}

/** A cluster's API server, and how it is told from an impostor. */
export interface ClusterAccess {
  /** https, or http on loopback; a path is kept before every request's own. */
  readonly server: URL;
  /** PEM; left out: the authorities of the system. Asked before every request, as a mounted one may be exchanged. */
  readonly ca?: string | undefined;
  readonly skipVerify?: boolean | undefined;
  /** The name in the server's certificate, where it is not the host. */
  readonly serverName?: string | undefined;
  /** The proxy on the way, in the words of the environment variables of that name. */
  readonly proxyEnv?: ProxyEnv | undefined;
  /** Fields of every request, for example Impersonate-User. */
  readonly headers?: Readonly<Record<string, string | readonly string[]>> | undefined;
  /** Asked before every request, and with `isRefused` once more after a 401, when what is remembered must not be given again. */
  credentials(isRefused?: boolean): Promise<Credentials>;
}

/** Which proxy is asked to CONNECT, and for which hosts none is. */
export interface ProxyEnv {
  readonly HTTPS_PROXY: string;
  readonly NO_PROXY?: string | undefined;
}
