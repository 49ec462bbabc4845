package fencepost.spark.kafka;

import fencepost.spark.kafka.ClientError.BadClientSetting;
import java.io.IOException;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.util.List;
import java.util.stream.Stream;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/** TLS with certificates and keys from PEM files, as the other clients take them. Without ssl.ca.location: Java's own. */
final class Tls {
    private static final char[] NO_PASSWORD = new char[0];

    private Tls() {}

    static Socket wrap(Socket plain, String host, ClientSettings settings) throws IOException {
        // The files are read for each connection, so a new certificate is used as soon as it is there.
        SSLSocket socket =
                (SSLSocket) context(settings).getSocketFactory().createSocket(plain, host, plain.getPort(), true);
        if (settings.checksHostName()) {
            SSLParameters parameters = socket.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            socket.setSSLParameters(parameters);
        }
        socket.startHandshake();
        return socket;
    }

    private static SSLContext context(ClientSettings settings) {
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(keys(settings), authorities(settings), null);
            return context;
        } catch (IOException | GeneralSecurityException | IllegalArgumentException e) {
            throw new BadClientSetting("a certificate cannot be read: " + e.getMessage()
                    + "\n\nhint: check the ssl.*.location settings; a key that Java cannot read becomes one that it can with "
                    + "`openssl pkcs8 -topk8`, or set fencepost.plane=python");
        }
    }

    private static TrustManager[] authorities(ClientSettings settings) throws IOException, GeneralSecurityException {
        if (settings.caLocation() == null) {
            return null;
        }
        KeyStore store = empty();
        Path location = Path.of(settings.caLocation());
        if (Files.isDirectory(location)) {
            try (Stream<Path> files = Files.list(location)) {
                for (Path file : files.filter(Files::isRegularFile).toList()) {
                    trust(store, Pem.certificates(file));
                }
            }
        } else {
            trust(store, Pem.certificates(location));
        }
        if (store.size() == 0) {
            throw new IOException("no certificate in " + location);
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return factory.getTrustManagers();
    }

    private static void trust(KeyStore store, List<Certificate> certificates) throws GeneralSecurityException {
        for (Certificate certificate : certificates) {
            store.setCertificateEntry("authority " + store.size(), certificate);
        }
    }

    private static KeyManager[] keys(ClientSettings settings) throws IOException, GeneralSecurityException {
        if (settings.certificateLocation() == null) {
            return null;
        }
        Path certificate = Path.of(settings.certificateLocation());
        // As with OpenSSL, one file may hold both.
        Path key = settings.keyLocation() == null ? certificate : Path.of(settings.keyLocation());
        KeyStore store = empty();
        Certificate[] chain = Pem.certificates(certificate).toArray(new Certificate[0]);
        store.setKeyEntry("key", Pem.privateKey(key, settings.keyPassword()), NO_PASSWORD, chain);
        KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(store, NO_PASSWORD);
        return factory.getKeyManagers();
    }

    private static KeyStore empty() throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }
}
