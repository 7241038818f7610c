import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Scanner;
import javax.security.auth.x500.X500Principal;

/** Reads names, a line of hexadecimal digits each, and writes each as Java does, in UTF-8 as digits. */
public class Subjects {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            byte[] name = HexFormat.of().parseHex(lines.nextLine().strip());
            String shown;
            try {
                shown = new X500Principal(name).getName();
            } catch (IllegalArgumentException error) {
                System.out.println("refused");
                continue;
            }
            System.out.println("=" + HexFormat.of().formatHex(shown.getBytes(StandardCharsets.UTF_8)));
        }
    }
}
